"""Record batches as columns: from the bytes of a segment file to Arrow."""
