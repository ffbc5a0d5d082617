"""Between text and trees: lexer, grammar, parser, printer, files."""
