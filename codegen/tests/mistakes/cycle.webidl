/// A rank.
typedef Rank Rank;
