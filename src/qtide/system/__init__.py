"""What the operating system offers: files, locks, processes, pipes. Independent of qtide."""
