"""Visual Sudoku (Chapter 6)."""
