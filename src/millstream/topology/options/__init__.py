"""What the words of the DSL take as options: windows, materialization, suppression."""
