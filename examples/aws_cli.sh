#!/bin/sh
# The AWS CLI as it is. `sh aws_cli.sh http://127.0.0.1:9324` uses a node that runs (`dovetail serve`); without an address it starts one in
# memory on a free port and stops it at the end.
set -eu

if [ $# -gt 0 ]; then
  url=$1
else
  ready=$(mktemp)
  dovetail serve --store memory: --http 127.0.0.1:0 --native off --log-level warning >"$ready" &
  node=$!
  trap 'kill $node; rm -f "$ready"' EXIT
  until grep -q ready "$ready"; do
    kill -0 $node  # If it ended, so do we.
    sleep 0.1
  done
  url=$(sed -n 's/.* http=\([^ ]*\).*/\1/p' "$ready")
fi

# Any key will do on this machine; with `dovetail serve --auth signed` it is one of `dovetail account create`.
export AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any AWS_DEFAULT_REGION=us-east-1
sqs() { aws --endpoint-url "$url" sqs "$@"; }

sqs create-queue --queue-name orders --attributes VisibilityTimeout=60
sqs send-message --queue-url orders --message-body "two dozen eggs"

# A queue is named by its URL or, here, by its name alone.
receipt=$(sqs receive-message --queue-url orders --wait-time-seconds 20 --query 'Messages[0].ReceiptHandle' --output text)
sqs delete-message --queue-url orders --receipt-handle "$receipt"

sqs get-queue-attributes --queue-url orders --attribute-names ApproximateNumberOfMessages
sqs delete-queue --queue-url orders
