"""boto3 as it is: a queue with dead letters, batches, long polling, and an order that is kept per customer.

Needs boto3. `python sqs_boto3.py http://127.0.0.1:9324` uses a node that runs (`dovetail serve`); without one it is started in memory.
"""

import json
import sys
from contextlib import nullcontext

import boto3

import dovetail


def main(url):
    # Any key will do on this machine; with `dovetail serve --auth signed` it is one of `dovetail account create`.
    sqs = boto3.client("sqs", endpoint_url=url, region_name="us-east-1", aws_access_key_id="any", aws_secret_access_key="any")

    dead = sqs.create_queue(QueueName="orders-dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    orders = sqs.create_queue(QueueName="orders", Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "60"})["QueueUrl"]

    # A batch is judged entry by entry: what failed is named in the answer, and nothing else failed.
    entries = [{"Id": str(number), "MessageBody": json.dumps({"order": number})} for number in range(5)]
    answer = sqs.send_message_batch(QueueUrl=orders, Entries=entries)
    print("sent", len(answer["Successful"]), "failed", len(answer.get("Failed", [])))

    # A receiver that finds nothing waits up to 20 seconds on the server and is woken by the next message.
    while messages := sqs.receive_message(QueueUrl=orders, MaxNumberOfMessages=10, WaitTimeSeconds=1).get("Messages"):
        for message in messages:
            order = json.loads(message["Body"])["order"]
            if order == 3:
                # Nobody can handle this one: it comes again, and the second time it goes to the dead letters.
                sqs.change_message_visibility(QueueUrl=orders, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
            else:
                sqs.delete_message(QueueUrl=orders, ReceiptHandle=message["ReceiptHandle"])
    letters = sqs.receive_message(QueueUrl=dead, WaitTimeSeconds=1).get("Messages", [])
    print("dead letters", [json.loads(message["Body"])["order"] for message in letters])

    # In a FIFO queue the messages of one group go one behind the other, and a repeat within five minutes is stored once.
    bills = sqs.create_queue(QueueName="bills.fifo", Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"})["QueueUrl"]
    for body in ("opened", "paid", "paid", "closed"):
        sqs.send_message(QueueUrl=bills, MessageBody=body, MessageGroupId="customer-7")
    messages = sqs.receive_message(QueueUrl=bills, MaxNumberOfMessages=10)["Messages"]
    print("bills", [message["Body"] for message in messages])


if __name__ == "__main__":
    with nullcontext() if sys.argv[1:] else dovetail.testing.serve() as server:
        main(sys.argv[1] if server is None else server.url)
