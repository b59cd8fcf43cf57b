/**
 * Fills in the placeholders of a command's arguments. No shell is involved: a value stays one
 * argument, and placeholders inside a value are not replaced.
 */

export type Placeholders = { readonly sessionUuid: string; readonly text: string }

const PLACEHOLDER = /\{(sessionUuid|text)\}/g

export function expandArguments(args: readonly string[], values: Placeholders): string[] {
  assertNoFlag(args, values.text)
  return args.map((argument) =>
    argument.replace(PLACEHOLDER, (_, name: keyof Placeholders) => values[name]),
  )
}

export function mentions(args: readonly string[], name: keyof Placeholders): boolean {
  return args.some((argument) => argument.includes(`{${name}}`))
}

/** A caller's text must not become a flag of the command; after `--` it cannot. */
function assertNoFlag(args: readonly string[], text: string): void {
  const place = args.findIndex((argument) => argument.startsWith('{text}'))
  if (place < 0 || !text.startsWith('-') || args.slice(0, place).includes('--')) return
  throw new Error('the text begins with "-", which this agent would read as a flag')
}
