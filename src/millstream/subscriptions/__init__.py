"""What subscriptions are made of; `millstream.parallel` is the way in."""
