"""Knowledge that several tests of the semantics reason with."""

ADDITION = """
    sort Image
    sort Digit = 0..3
    data pairs(left: Image, right: Image, sum: Int)
    func digit(Image) -> Digit
    [sum] forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)
"""
WEATHER = """
    sort Day
    pred rain(Day)
    pred wet(Day)
    pred warm(Day)
    [soaked]          forall d: Day. rain(d) -> wet(d)
    [cold, weight 2]  forall d: Day. rain(d) & !wet(d) | warm(d)
    [some]            exists d: Day. warm(d)
"""
