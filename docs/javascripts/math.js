// Typeset formulas as MathML, which browsers draw by themselves: no fonts and no styles are needed.
document$.subscribe(() => {
  for (const element of document.querySelectorAll(".arithmatex")) {
    const text = element.textContent.trim();
    const shown = text.startsWith("\\[");
    katex.render(text.slice(2, -2), element, { displayMode: shown, output: "mathml", throwOnError: false });
  }
});
