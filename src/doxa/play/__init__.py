"""The playground: knowledge as one types it, beliefs as sliders, and what every semantics makes of the two.

``doxa play rules.doxa`` opens it in a browser. What the page shows comes from a `Scene`, which can be asked without a
browser as well: knowledge, some objects, a belief about every atom, and limits, so that no text can hang it.

>>> scene = Scene("pred rain; pred wet; [soaked] rain -> wet", beliefs={"rain": 0.9, "wet": 0.3})
>>> found = scene.reason("exact")
>>> [(row.axiom, round(row.truth, 2)) for row in found.axioms], round(found.gradients["wet"], 2)
([('soaked', 0.37)], -2.43)
"""

from doxa.play._answers import Answer, ask
from doxa.play._scene import Reasoning, Scene
from doxa.play._state import State

__all__ = ["Answer", "Reasoning", "Scene", "State", "ask"]
