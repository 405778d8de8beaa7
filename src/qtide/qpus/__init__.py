"""QPUs give leases and run payloads: exclusive, or as virtual QPUs of a shared device."""
