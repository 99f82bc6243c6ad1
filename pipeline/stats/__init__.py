"""What topics are made of: how much, how fast, how evenly, how well compressed, and who has not read it yet."""
