"""What can be asked, and what the answers are: plain data, which every stage may know."""
