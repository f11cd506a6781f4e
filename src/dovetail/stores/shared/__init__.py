"""The replayed store on a log that other nodes write to as well: writers and their numbers, several clocks, chores that one does."""
