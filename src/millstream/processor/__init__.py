"""The Processor API's side of the engine: what user code is given, and who answers its failures."""
