"""What everything else rests on: time, the ledger, values, files, options, plug-ins, errors."""
