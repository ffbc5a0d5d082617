"""First steps: write knowledge, bind tensors to it, see how far it holds, and ask what follows.

python examples/first_steps.py [--smoke]
"""

import sys

import torch

import doxa

KNOWLEDGE = """
    sort Person = {anna, bob, carl, dora}
    pred friends(Person, Person)
    pred smokes(Person)

    [symmetry]   forall x, y: Person. friends(x, y) -> friends(y, x)
    [homophily]  forall x, y: Person where x != y. friends(x, y) & smokes(x) -> smokes(y)
    [someone]    exists x: Person. smokes(x)

    fact friends(anna, bob)
    fact smokes(anna)
"""


def main(smoke: bool) -> None:
    kb = doxa.parse(KNOWLEDGE)
    print(kb.unicode(), "\n")

    # 1. How far do these truth values satisfy the knowledge?
    friends = torch.zeros(4, 4, dtype=torch.bool)
    friends[0, 1] = friends[1, 0] = friends[2, 3] = True
    smokes = torch.tensor([True, False, False, False])
    world = doxa.Interpretation(kb, friends=friends, smokes=smokes)
    print(doxa.satisfaction(kb, world), "\n")

    # 2. A network in place of a tensor: objects of an open sort arrive with the data.
    ravens = doxa.parse("sort Bird; pred raven(Bird); pred black(Bird); [black] forall b: Bird. raven(b) -> black(b)")
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(8, 1), torch.nn.Flatten(0))
    birds = torch.randn(10 if smoke else 1000, 8)
    sees = doxa.Interpretation(ravens, raven=doxa.logits(network), black=birds[:, 0] > 0)
    print(doxa.satisfaction(ravens, sees, Bird=birds), "\n")

    # 3. What follows, whatever the world is like?
    for question in ("smokes(bob)", "smokes(carl)"):
        print(f"{question}:", doxa.entails(kb, doxa.parse_formula(question, kb)))


if __name__ == "__main__":
    main(smoke="--smoke" in sys.argv)
