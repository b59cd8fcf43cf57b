import { printable, printableLines } from '../../wire/printable.ts'

/**
 * Text of agents and clients as the page shows it: characters that would hide or reorder a part of
 * it are shown as such. An agent in JavaScript may have given what is no text.
 */
export const shownText = (text: unknown): string => printableLines(String(text))

/** The same on one line: names, keys, labels. */
export const shownName = (text: unknown): string => printable(String(text))
