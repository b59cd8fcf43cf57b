/**
 * A command's arguments with their placeholders filled in. No shell reads them: a value stays one
 * argument whatever is in it, and no value is looked at for placeholders again.
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

/** What a caller says must not become a flag of the command; after `--` nothing is one. */
function assertNoFlag(args: readonly string[], text: string): void {
  const place = args.findIndex((argument) => argument.startsWith('{text}'))
  if (place < 0 || !text.startsWith('-') || args.slice(0, place).includes('--')) return
  throw new Error('the text begins with "-", which this agent would take for a flag')
}
