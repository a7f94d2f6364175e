"""A small shop at work: four tables, and what each of them held at every resolved timestamp.

Shop.work(n)  -> n random transactions -> Changefeed
Shop.resolve() -> R.RESOLVED, and `history[R]` remembers the state: the oracle of the demo and of tests
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from frazil.demo.changefeed import Changefeed, ShopChange
from frazil.sources.cockroachdb.position import LOGICAL_MAX, Hlc

Row = Mapping[str, Any]
Rows = dict[tuple[Any, ...], Row]

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "customers": {"id": "INT8", "email": "STRING", "name": "STRING", "balance": "DECIMAL(12,2)", "vip": "BOOL",
                  "joined": "TIMESTAMPTZ"},
    "products": {"sku": "STRING", "title": "STRING", "price": "DECIMAL(12,2)", "tags": "STRING[]"},
    "orders": {"id": "UUID", "customer_id": "INT8", "status": "STRING", "total": "DECIMAL(12,2)",
               "placed_at": "TIMESTAMP", "details": "JSONB"},
    "order_items": {"order_id": "UUID", "line": "INT4", "sku": "STRING", "quantity": "INT8"},
}  # fmt: skip
KEYS: Mapping[str, tuple[str, ...]] = {
    "customers": ("id",), "products": ("sku",), "orders": ("id",), "order_items": ("order_id", "line"),
}  # fmt: skip
_STATUSES = ("new", "paid", "packed", "sent", "returned")


@dataclass
class Shop:
    feed: Changefeed
    chance: random.Random
    now: Callable[[], int]
    """Nanoseconds since 1970; commit times never repeat even where this does."""
    tables: dict[str, Rows] = field(default_factory=lambda: {name: {} for name in COLUMNS})
    log: list[ShopChange] = field(default_factory=list)
    resolved: list[Hlc] = field(default_factory=list)
    _versions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COLUMNS, 1))
    _last: Hlc = field(default_factory=lambda: Hlc(0))
    _customers: int = 0
    _products: int = 0

    def open_for_business(self, customers: int, products: int) -> None:
        """The initial scan: every row carries one timestamp."""
        at = self._tick()
        for _ in range(customers):
            self._put("customers", self._new_customer(), at)
        for _ in range(products):
            self._put("products", self._new_product(), at)

    def work(self, transactions: int) -> None:
        for _ in range(transactions):
            action = self.chance.choices(
                (self._order, self._progress, self._cancel, self._register, self._edit_customer, self._renumber),
                (6, 8, 2, 2, 3, 1),
            )[0]
            action(self._tick())

    def resolve(self, behind: int = 0) -> Hlc:
        """Resolves everything so far, or with `behind` only the changes up to that many nanoseconds ago."""
        newest = self.resolved[-1] if self.resolved else Hlc(0)
        return self._resolve(self._tick() if not behind else max(Hlc(self._last.wall - behind), newest))

    def state_at(self, resolved: Hlc) -> dict[str, Rows]:
        tables: dict[str, Rows] = {name: {} for name in COLUMNS}
        for change in self.log:
            if change.updated <= resolved:
                if change.after is None:
                    tables[change.topic].pop(change.key, None)
                else:
                    tables[change.topic][change.key] = change.after
        return tables

    def add_discount(self) -> None:
        """ALTER TABLE products ADD COLUMN discount DECIMAL(5,2) NOT NULL DEFAULT 0.00, with its backfill."""
        at = self._tick()
        self._resolve(Hlc(at.wall - 1, LOGICAL_MAX))
        self._versions["products"] += 1
        for row in list(self.tables["products"].values()):
            self._put("products", {**row, "discount": Decimal("0.00")}, at)

    @property
    def has_discount(self) -> bool:
        return self._versions["products"] > 1

    # transactions

    def _order(self, at: Hlc) -> None:
        order_id = UUID(int=self.chance.getrandbits(128), version=4)
        skus = self.chance.sample(sorted(self.tables["products"]), k=self.chance.randint(1, 4))
        total = Decimal(0)
        for line, (sku,) in enumerate(skus, start=1):
            quantity = self.chance.randint(1, 5)
            total += self.tables["products"][sku,]["price"] * quantity
            self._put("order_items", {"order_id": order_id, "line": line, "sku": sku, "quantity": quantity}, at)
        placed = _EPOCH + timedelta(microseconds=at.wall // 1000)
        details = {"channel": self.chance.choice(("web", "app", "phone")), "gift": self.chance.random() < 0.2}
        customer = self.chance.choice(sorted(self.tables["customers"]))[0]
        self._put("orders", {"id": order_id, "customer_id": customer, "status": "new", "total": total,
                             "placed_at": placed, "details": details}, at)  # fmt: skip

    def _progress(self, at: Hlc) -> None:
        if self.tables["orders"]:
            row = self.tables["orders"][self.chance.choice(sorted(self.tables["orders"]))]
            self._put("orders", {**row, "status": self.chance.choice(_STATUSES)}, at)

    def _cancel(self, at: Hlc) -> None:
        if self.tables["orders"]:
            (order_id,) = self.chance.choice(sorted(self.tables["orders"]))
            self._delete("orders", (order_id,), at)
            for key in [key for key in self.tables["order_items"] if key[0] == order_id]:
                self._delete("order_items", key, at)

    def _register(self, at: Hlc) -> None:
        self._put("customers", self._new_customer(), at)

    def _edit_customer(self, at: Hlc) -> None:
        row = self.tables["customers"][self.chance.choice(sorted(self.tables["customers"]))]
        gift = Decimal(self.chance.randint(-5_000, 5_000)) / 100
        self._put("customers", {**row, "balance": row["balance"] + gift, "vip": self.chance.random() < 0.1}, at)

    def _renumber(self, at: Hlc) -> None:
        """A primary-key change: the old key is deleted and the new one inserted at one commit time."""
        (sku,) = self.chance.choice(sorted(self.tables["products"]))
        row = self.tables["products"][sku,]
        self._products += 1
        self._put("products", {**row, "sku": f"sku-{self._products:05d}"}, at)
        self._delete("products", (sku,), at)

    def _new_customer(self) -> Row:
        self._customers += 1
        number = self._customers
        joined = _EPOCH.replace(tzinfo=UTC) + timedelta(days=18_000, seconds=number, microseconds=number % 7)
        return {"id": number, "email": f"user{number}@example.com", "name": self.chance.choice(_NAMES),
                "balance": Decimal(self.chance.randint(0, 100_000)) / 100, "vip": None, "joined": joined}  # fmt: skip

    def _new_product(self) -> Row:
        self._products += 1
        price = Decimal(self.chance.randint(100, 99_999)) / 100
        row = {"sku": f"sku-{self._products:05d}", "title": f"Thing No. {self._products}", "price": price,
               "tags": self.chance.sample(_TAGS, k=self.chance.randint(0, 3))}  # fmt: skip
        return {**row, "discount": Decimal("0.00")} if self.has_discount else row

    # changes

    def _put(self, table: str, row: Row, at: Hlc) -> None:
        key = tuple(row[name] for name in KEYS[table])
        self.tables[table][key] = row
        self._emit(ShopChange(table, self._versions[table], key, row, at))

    def _delete(self, table: str, key: tuple[Any, ...], at: Hlc) -> None:
        del self.tables[table][key]
        self._emit(ShopChange(table, self._versions[table], key, None, at))

    def _emit(self, change: ShopChange) -> None:
        self.log.append(change)
        self.feed.emit(change)

    def _resolve(self, resolved: Hlc) -> Hlc:
        if not self.resolved or resolved > self.resolved[-1]:
            self.feed.resolve(resolved)
            self.resolved.append(resolved)
        return resolved

    def _tick(self) -> Hlc:
        wall = self.now()
        self._last = Hlc(wall) if wall > self._last.wall else Hlc(self._last.wall, self._last.logical + 1)
        return self._last


_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  TIMESTAMP has no zone
_NAMES = ("Ada", "Grace", "Edsger", "Barbara", "Zoë", "Łukasz", "Ming", "Aisha", "Björn", "Noor")
_TAGS = ("new", "sale", "eco", "heavy", "fragile", "bulk")
