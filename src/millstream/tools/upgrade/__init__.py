"""What a new version of a program finds again of the old one's state and topics."""
