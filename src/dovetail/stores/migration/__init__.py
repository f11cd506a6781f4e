"""From one store to another with everything that a state knows: run (the order of steps), source and target (what each kind of log is)."""
