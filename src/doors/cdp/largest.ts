/** The largest items to drop, so that the others together are within a total. */
export function largestBeyond<Item>(
  items: Iterable<Item>,
  bytesOf: (item: Item) => number,
  totalMax: number,
): readonly Item[] {
  const sized = [...items].map((item) => ({ item, bytes: bytesOf(item) }))
  let total = sized.reduce((sum, { bytes }) => sum + bytes, 0)
  if (total <= totalMax) return []
  const beyond: Item[] = []
  for (const { item, bytes } of sized.toSorted((one, other) => other.bytes - one.bytes)) {
    if (total <= totalMax) break
    total -= bytes
    beyond.push(item)
  }
  return beyond
}
