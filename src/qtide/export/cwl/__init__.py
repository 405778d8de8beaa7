"""Any program as a CWL workflow: a loop that advances it by its journal, phase after phase."""
