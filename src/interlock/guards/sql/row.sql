-- Rows of the user's own tables that carry a token or a mark. {table} is the quoted name of the table, {key} a condition that
-- names the row, {changes} assignments, each with a comma after it, and {column} the quoted column of the token or the mark.

-- name: update
-- Changes the row unless a higher token was accepted for it before. :token, the values of {key} and {changes}.
update {table} set {changes}{column} = :token where {key} and {column} <= :token;

-- name: token
-- The token in the row, read when `update` has changed nothing.
select {column} from {table} where {key} for update;

-- name: token.sqlite
select {column} from {table} where {key};

-- name: mark
-- Leaves a mark in the row. :mark, the values of {key}.
update {table} set {column} = :mark where {key};

-- name: update_marked
-- Changes the row if its mark is still ours. A new mark is left, so that the same change cannot be made twice. :mark, :next.
update {table} set {changes}{column} = :next where {key} and {column} = :mark;
