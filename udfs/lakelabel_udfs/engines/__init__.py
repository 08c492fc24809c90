"""Engines: what turns a document into an outcome, behind one protocol."""
