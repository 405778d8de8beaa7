"""The service's live page: figures, a stream of changes, sign-in, and the files of the page."""
