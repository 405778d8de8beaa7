"""The tables of the store, and how they have changed from version to version."""

SCHEMA = """
CREATE TABLE tasks (
  sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, user TEXT NOT NULL,
  account TEXT NOT NULL, job INTEGER, key TEXT, digest TEXT NOT NULL, device TEXT NOT NULL,
  name TEXT NOT NULL, format TEXT NOT NULL, shots INTEGER NOT NULL, seed INTEGER NOT NULL,
  size INTEGER NOT NULL, seconds REAL NOT NULL, priority INTEGER NOT NULL, max_wait REAL,
  submitted REAL NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL, started REAL,
  ended REAL, used REAL NOT NULL, error TEXT, request BLOB, payload BLOB,
  answer_format TEXT, answer BLOB
);
CREATE UNIQUE INDEX tasks_by_key ON tasks (user, key) WHERE key IS NOT NULL;
CREATE INDEX tasks_by_state ON tasks (state, sequence);
CREATE INDEX tasks_by_user ON tasks (user, sequence);
CREATE INDEX tasks_by_user_and_state ON tasks (user, state, sequence);
CREATE INDEX tasks_by_end ON tasks (ended);
CREATE INDEX tasks_to_purge ON tasks (ended) WHERE payload IS NOT NULL;
CREATE TABLE tokens (
  digest TEXT PRIMARY KEY, user TEXT NOT NULL, account TEXT NOT NULL, job INTEGER,
  operator INTEGER NOT NULL, created REAL NOT NULL, expires REAL NOT NULL, name TEXT NOT NULL,
  holder INTEGER, holder_start INTEGER
);
CREATE TABLE operators (user TEXT PRIMARY KEY);
CREATE TABLE drains (
  device TEXT PRIMARY KEY, reason TEXT NOT NULL, since REAL NOT NULL, licences INTEGER NOT NULL
);
"""
OCCUPATIONS = """
CREATE TABLE occupations (
  task TEXT NOT NULL, began REAL NOT NULL, seconds REAL NOT NULL, ended REAL NOT NULL,
  device TEXT NOT NULL, user TEXT NOT NULL, account TEXT NOT NULL, job INTEGER,
  cause TEXT NOT NULL, PRIMARY KEY (task, began)
);
CREATE INDEX occupations_by_end ON occupations (ended);
INSERT INTO occupations SELECT id, coalesce(ended - used, submitted), used,
  coalesce(ended, submitted + used), device, user, account, job, '' FROM tasks WHERE used > 0;
"""
CALIBRATIONS = """
ALTER TABLE tasks ADD COLUMN calibration TEXT;
ALTER TABLE tasks ADD COLUMN wanted_calibration TEXT;
ALTER TABLE tasks ADD COLUMN calibrated_within REAL;
CREATE TABLE calibrations (
  id TEXT PRIMARY KEY, device TEXT NOT NULL, at REAL NOT NULL, metrics TEXT NOT NULL
)
"""
HISTORY = """
CREATE TABLE history (
  resolution INTEGER NOT NULL, at INTEGER NOT NULL, device TEXT NOT NULL, figures BLOB NOT NULL,
  PRIMARY KEY (resolution, at, device)
);
"""
MAINTENANCE = """
CREATE TABLE maintenance (
  number INTEGER PRIMARY KEY, device TEXT NOT NULL, start REAL NOT NULL, stop REAL NOT NULL,
  reason TEXT NOT NULL
);
"""
ALLOCATIONS = """
CREATE TABLE allocations (
  number INTEGER PRIMARY KEY, account TEXT NOT NULL, user TEXT NOT NULL, device TEXT NOT NULL,
  period TEXT NOT NULL, seconds REAL NOT NULL, start REAL NOT NULL, stop REAL NOT NULL,
  reason TEXT NOT NULL
);
CREATE TABLE job_records (
  job INTEGER NOT NULL, start INTEGER NOT NULL, user TEXT NOT NULL, admitted REAL NOT NULL,
  told TEXT, PRIMARY KEY (job, start)
);
CREATE INDEX job_records_untold ON job_records (job) WHERE told IS NULL;
CREATE INDEX tasks_by_job ON tasks (job) WHERE job IS NOT NULL;
"""
PAUSES = """
ALTER TABLE tasks ADD COLUMN share REAL NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN progress INTEGER NOT NULL DEFAULT 0
"""
SESSIONS = """
ALTER TABLE tasks ADD COLUMN idle REAL;
ALTER TABLE tasks ADD COLUMN session TEXT;
ALTER TABLE tasks ADD COLUMN route TEXT
"""
COMPANY = """
ALTER TABLE tasks ADD COLUMN width INTEGER;
ALTER TABLE tasks ADD COLUMN beside INTEGER NOT NULL DEFAULT 0
"""
USAGE = """
CREATE INDEX occupations_by_user ON occupations (user, ended)
"""
STEPS = (
    SCHEMA,
    OCCUPATIONS,
    HISTORY,
    CALIBRATIONS,
    MAINTENANCE,
    ALLOCATIONS,
    PAUSES,
    SESSIONS,
    COMPANY,
    USAGE,
)
"""What makes a store of each version from the one before; the first makes one from nothing."""
VERSION = len(STEPS)
