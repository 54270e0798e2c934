"""Maximum bipartite matching: how many parts of one side can each have one of the other."""

from __future__ import annotations

from collections import deque


def maximum_matching(edges: list[list[int]]) -> int:
    """The size of the largest matching; ``edges[row]`` are the columns a row may have.

    Augmenting paths, found breadth first so that thousands of rows need no deep recursion.
    """
    row_of: dict[int, int] = {}
    matched = 0
    for start in range(len(edges)):
        came_from: dict[int, int] = {}  # column -> the row it was reached from
        queue = deque([start])
        free: int | None = None
        while queue and free is None:
            row = queue.popleft()
            for column in edges[row]:
                if column in came_from:
                    continue
                came_from[column] = row
                if column not in row_of:
                    free = column
                    break
                queue.append(row_of[column])
        if free is None:
            continue
        matched += 1
        column_of = {row: column for column, row in row_of.items()}
        turn: int | None = free
        while turn is not None:  # turn the path round: every row on it takes the next column
            row = came_from[turn]
            row_of[turn] = row
            turn = None if row == start else column_of[row]
    return matched
