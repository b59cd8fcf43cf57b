/**
 * What a command line says, for rules. Two readings, each on the safe side of its use:
 *
 * 1. `simpleCommand` is for what is to be allowed. It returns the words that a shell would run, or
 *    null if the line could do anything else: more than one command, a substitution, a
 *    redirection, a pattern of file names, an assignment, or anything that it does not know.
 * 2. `commandsIn` is for what is to be denied. It returns every list of words that may be run as a
 *    command, also those inside of quotes and substitutions, and some that are not run at all.
 */

/** What stands for itself outside of quotes. All else may mean something to some shell. */
const PLAIN = /^[\p{L}\p{N}_.,:/@%+=-]$/u
const PLAIN_OR_STAR = /^[\p{L}\p{N}_.,:/@%+=*-]$/u
const ASSIGNMENT = /^[A-Za-z_]\w*(\[.*\])?\+?=/
/** In double quotes these are not only themselves. */
const IN_DOUBLE_QUOTES = /[$`\\!]/
const CONTROL = /[\p{Cc}\p{Zl}\p{Zp}]/u

/** The words of a line that is one command and nothing else; null: it may be more. */
export function simpleCommand(line: string): readonly string[] | null {
  return wordsOf(line, PLAIN)
}

/** The words of a pattern, in which a star may stand for something. */
export function patternWords(pattern: string): readonly string[] | null {
  return wordsOf(pattern, PLAIN_OR_STAR)
}

function wordsOf(line: string, plain: RegExp): readonly string[] | null {
  const text = line.replace(/^[ \t\n]+|[ \t\n]+$/g, '')
  if (text === '' || CONTROL.test(text)) return null
  const words: string[] = []
  let word: string | null = null
  const characters = text[Symbol.iterator]()
  for (const character of characters) {
    if (character === ' ') {
      if (word !== null) words.push(word)
      word = null
    } else if (character === "'" || character === '"') {
      const quoted = quotedText(characters, character)
      if (quoted === null) return null
      word = (word ?? '') + quoted
    } else if (plain.test(character) && !(character === '=' && word === null)) {
      word = (word ?? '') + character
    } else {
      return null
    }
  }
  if (word !== null) words.push(word)
  const [first = ''] = words
  return first === '' || ASSIGNMENT.test(first) ? null : words
}

/** The text up to the quote that ends it; null: there is none, or the text is not only itself. */
function quotedText(characters: Iterator<string>, quote: string): string | null {
  let text = ''
  for (let next = characters.next(); next.done !== true; next = characters.next()) {
    if (next.value === quote) return text
    if (quote === '"' && IN_DOUBLE_QUOTES.test(next.value)) return null
    text += next.value
  }
  return null
}

/** How deep commands are looked for inside of texts. */
const DEPTH_MAX = 4
/** How many lists of words are returned. */
const COMMANDS_MAX = 1_000
/** Words end here, and what follows may be a command of its own. */
const SEPARATOR = /[;&|(){}<>`\n\r]/
const QUOTED = /'([^']*)'|"((?:\\[^]|[^"\\])*)"/y

/** `$'\x72m'` of bash. */
const ANSI_QUOTED = /\$'((?:\\[^]|[^'\\])*)'/g

function unescaped(_: string, text: string): string {
  const plain = text.replaceAll(
    /\\(?:x([\da-f]{1,2})|u([\da-f]{1,4})|([0-7]{1,3})|([^]))/gi,
    (__, hex?: string, unicode?: string, octal?: string, other?: string) => {
      const digits = hex ?? unicode
      if (digits !== undefined) return String.fromCodePoint(Number.parseInt(digits, 16))
      return octal === undefined ? (other ?? '') : String.fromCodePoint(Number.parseInt(octal, 8))
    },
  )
  // As if it were quoted, with what would end that left out.
  return `'${plain.replaceAll("'", '')}'`
}

/** Every list of words in a line that may be run as a command. */
export function commandsIn(given: string, depth = 0): readonly (readonly string[])[] {
  const line = given.replaceAll(/\$\{?IFS\b\}?/g, ' ').replaceAll(ANSI_QUOTED, unescaped)
  const found: string[][] = [[]]
  const inside: string[] = []
  let word: string | null = null
  const endWord = (): void => {
    if (word !== null) found.at(-1)?.push(word)
    word = null
  }
  for (let at = 0; at < line.length; at += 1) {
    const character = line.charAt(at)
    QUOTED.lastIndex = at
    const quoted = QUOTED.exec(line)
    if (quoted !== null) {
      const text = quoted[1] ?? (quoted[2] ?? '').replaceAll(/\\([^])/g, '$1')
      word = (word ?? '') + text
      inside.push(text)
      at = QUOTED.lastIndex - 1
    } else if (/\s/.test(character) && character !== '\n' && character !== '\r') {
      endWord()
    } else if (SEPARATOR.test(character)) {
      endWord()
      found.push([])
    } else if (character === '\\') {
      at += 1
      // A line that goes on is one line.
      if (line.charAt(at) !== '\n') word = (word ?? '') + line.charAt(at)
    } else if (character !== '$') {
      word = (word ?? '') + character
    }
  }
  endWord()
  const deeper = depth === DEPTH_MAX ? [] : inside.filter((text) => /[\s;&|(){}<>`$]/.test(text))
  const commands = found.filter((words) => words.length > 0)
  return [...commands, ...deeper.flatMap((text) => commandsIn(text, depth + 1))].slice(
    0,
    COMMANDS_MAX,
  )
}
