//! Images: their files, and patches of their pixels.
