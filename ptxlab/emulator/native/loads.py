"""Loads in LLVM's assembly: of eight threads at once where they lie side by side, or at one place."""

from __future__ import annotations

from ptxlab.emulator.native.addresses import TranslatedAddress, all_of
from ptxlab.native.code import LANES, Code, Value, number, vector


class Loads:
    """Writes the loads of a segment."""

    def __init__(self, code: Code) -> None:
        self.code = code

    def load(self, found: TranslatedAddress, offset: int, kind: str, count: int) -> list[Value]:
        """Return the ``count`` elements of an item, integers of type ``kind``."""
        if not found.address.per_lane:
            return self._load_one(
                self.code.before, found.address, offset, kind, count, found.active
            )
        code = self.code
        size = int(kind[1:]) // 8
        self._shape(found, size * count)
        assert found.first is not None
        assert found.same is not None
        n = code.name("")
        lines, kinds = code.body, vector(kind)
        first = Value(f"%first{n}", "i64")
        lines.append(f"{first.text} = add {found.first}, {offset}")
        lines.append(f"br i1 {found.apart[size * count].text}, label %apart{n}, label %together{n}")
        lines.append(f"apart{n}:")
        lines.append(f"%row.p{n} = inttoptr i64 {first.text} to ptr")
        many = LANES * count
        lines.append(f"%row{n} = load <{many} x {kind}>, ptr %row.p{n}, align 1")
        apart = []
        for part in range(count):
            name = f"%a{n}.{part}"
            picked = ", ".join(f"i32 {lane * count + part}" for lane in range(LANES))
            lines.append(
                f"{name} = shufflevector <{many} x {kind}> %row{n}, <{many} x {kind}> poison, "
                f"<{LANES} x i32> <{picked}>"
            )
            apart.append(name)
        lines.append(f"br label %loaded{n}")
        lines.append(f"together{n}:")
        lines.append(f"br i1 {found.same.text}, label %same{n}, label %each{n}")
        lines.append(f"same{n}:")
        same = [
            code.spread_here(one).text
            for one in self._load_one(lines, found.first, offset, kind, count, None)
        ]
        lines.append(f"br label %loaded{n}")
        lines.append(f"each{n}:")
        each = self._load_each(found, offset, kind, count)
        lines.append(f"br label %loaded{n}")
        lines.append(f"loaded{n}:")
        code.label = f"loaded{n}"
        results = []
        for part in range(count):
            name = code.name()
            lines.append(
                f"{name} = phi {kinds} [{apart[part]}, %apart{n}], [{same[part]}, %same{n}], "
                f"[{each[part]}, %each{n}]"
            )
            results.append(Value(name, kind, True))
        return results

    def _load_one(
        self,
        lines: list[str],
        address: Value,
        offset: int,
        kind: str,
        count: int,
        active: Value | None,
    ) -> list[Value]:
        code, size = self.code, int(kind[1:]) // 8
        results = []
        at = code.name()
        lines.append(f"{at} = add {address}, {offset}")
        if active is not None:
            chosen = code.name()
            lines.append(
                f"{chosen} = select {active}, i64 {at}, i64 ptrtoint (ptr @nowhere to i64)"
            )
            at = chosen
        for part in range(count):
            a, p, v = (code.name() for _ in range(3))
            lines.append(f"{a} = add i64 {at}, {part * size}")
            lines.append(f"{p} = inttoptr i64 {a} to ptr")
            lines.append(f"{v} = load {kind}, ptr {p}, align 1")
            results.append(Value(v, kind))
        return results

    def _load_each(self, found: TranslatedAddress, offset: int, kind: str, count: int) -> list[str]:
        code, lines = self.code, self.code.body
        addresses = (
            code.op("add", found.address, number(offset, "i64")) if offset else found.address
        )
        if found.active is not None:
            nowhere = Value("splat (i64 ptrtoint (ptr @nowhere to i64))", "i64", True)
            addresses = code.select(found.active, addresses, nowhere)
        current = ["poison"] * count
        for lane in range(LANES):
            a, p, v = (code.name() for _ in range(3))
            lines.append(f"{a} = extractelement {addresses}, i32 {lane}")
            lines.append(f"{p} = inttoptr i64 {a} to ptr")
            item = kind if count == 1 else f"<{count} x {kind}>"
            lines.append(f"{v} = load {item}, ptr {p}, align 1")
            for part in range(count):
                one = v
                if count > 1:
                    one = code.name()
                    lines.append(f"{one} = extractelement {item} {v}, i32 {part}")
                name = code.name()
                lines.append(
                    f"{name} = insertelement {vector(kind)} {current[part]}, {kind} {one}, i32 {lane}"
                )
                current[part] = name
        return current

    # ---- how eight addresses lie ----

    def _shape(self, found: TranslatedAddress, nbytes: int) -> None:
        code = self.code
        if found.first is None:
            first = code.name()
            code.body.append(f"{first} = extractelement {found.address}, i32 0")
            found.first = Value(first, "i64")
            found.whole = None if found.active is None else all_of(code, found.active)
            spread = code.spread_here(found.first)
            found.same = self._with(found, all_of(code, code.compare("eq", found.address, spread)))
        if nbytes not in found.apart:
            steps = ", ".join(f"i64 {nbytes * lane}" for lane in range(LANES))
            expected = code.op(
                "add", code.spread_here(found.first), Value(f"<{steps}>", "i64", True)
            )
            apart = all_of(code, code.compare("eq", found.address, expected))
            found.apart[nbytes] = self._with(found, apart)

    def _with(self, found: TranslatedAddress, holds: Value) -> Value:
        if found.whole is None:
            return holds
        name = self.code.name()
        self.code.body.append(f"{name} = and i1 {holds.text}, {found.whole.text}")
        return Value(name, "i1")
