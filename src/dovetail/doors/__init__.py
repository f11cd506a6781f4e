"""Doors: one room per protocol. A door translates to the verbs of the service and never knows another door."""
