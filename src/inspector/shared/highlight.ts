/**
 * Code as coloured pieces: comments, texts, numbers, keywords and names that are called. One pass
 * with one pattern for each family of languages, in which no part can match in two ways.
 */
export type Piece = { readonly kind: PieceKind | null; readonly text: string }
export type PieceKind = 'comment' | 'text' | 'number' | 'keyword' | 'call' | 'added' | 'removed'

const C_WORDS =
  'abstract as async await break case catch class const continue default defer delete do ' +
  'else enum export extends false final finally fn for from func function get go if impl ' +
  'implements import in instanceof interface is let match mod mut namespace new nil null of ' +
  'override package private protected pub public readonly return satisfies self set static ' +
  'struct super switch this throw trait true try type typeof undefined unsafe use using var ' +
  'virtual void where while with yield int long float double bool boolean string char byte ' +
  'number unknown never any'
const PYTHON_WORDS =
  'and as assert async await break case class continue def del elif else except False ' +
  'finally for from global if import in is lambda match None nonlocal not or pass raise ' +
  'return self True try while with yield begin do end elsif module nil rescue then unless ' +
  'until when'
const SHELL_WORDS =
  'case do done elif else esac exit export fi for function if in local return set then ' +
  'until while cd echo sudo'
const SQL_WORDS =
  'add all alter and as asc begin between by case check column commit conflict constraint ' +
  'create cross default delete desc distinct do drop else end exists foreign from full ' +
  'group having if in index inner insert into is join key left like limit not null offset ' +
  'on or order outer primary references returning right rollback select set table then ' +
  'transaction union unique update using values view when where with'

const LINE = String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`
const HASH = String.raw`(?<![\w$])#[^\n]*`
const QUOTED = String.raw`"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?`
const BACKTICKED = '`(?:[^`\\\\]|\\\\[\\s\\S])*`?'
const TRIPLE = String.raw`"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)`

type Family = {
  readonly comment: string
  readonly text: string
  readonly words: ReadonlySet<string>
  readonly isCaseless?: true
}

const words = (list: string): ReadonlySet<string> => new Set(list.split(' '))

const C: Family = { comment: LINE, text: `${QUOTED}|${BACKTICKED}`, words: words(C_WORDS) }
const PYTHON: Family = {
  comment: HASH,
  text: `${TRIPLE}|${QUOTED}`,
  words: words(PYTHON_WORDS),
}
const SHELL: Family = { comment: HASH, text: QUOTED, words: words(SHELL_WORDS) }
const SQL: Family = {
  comment: String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`,
  text: QUOTED,
  words: words(SQL_WORDS),
  isCaseless: true,
}
const DATA: Family = { comment: `${LINE}|${HASH}`, text: QUOTED, words: words('true false null') }
const MARKUP: Family = {
  comment: String.raw`<!--[\s\S]*?(?:-->|$)`,
  text: QUOTED,
  words: words(''),
}

const FAMILIES: readonly (readonly [string, Family])[] = [
  ['js jsx ts tsx javascript typescript mjs cjs java c h cc cpp c++ cs csharp go rust rs swift', C],
  ['kotlin kt scala dart php zig css scss less proto', C],
  ['py python rb ruby elixir ex lua r julia', PYTHON],
  ['sh bash zsh shell console dockerfile make makefile powershell ps1 terminal', SHELL],
  ['sql pgsql mysql sqlite postgresql', SQL],
  ['json jsonc json5 yaml yml toml ini env conf', DATA],
  ['html xml svg vue', MARKUP],
]

const byName = new Map(
  FAMILIES.flatMap(([names, family]) => names.split(' ').map((name) => [name, family])),
)

const patterns = new Map<Family, RegExp>()

function patternOf(family: Family): RegExp {
  const known = patterns.get(family)
  if (known !== undefined) return known
  const parts = [
    `(?<comment>${family.comment})`,
    `(?<text>${family.text})`,
    String.raw`(?<number>\b\d[\w.]*)`,
    String.raw`(?<word>[A-Za-z_$][\w$]*)(?<open>(?=\s?\())?`,
  ]
  const pattern = new RegExp(parts.join('|'), 'g')
  patterns.set(family, pattern)
  return pattern
}

/** A longer text is not coloured. */
const COLOURED_CHARS_MAX = 20_000

/** The pieces of the text, all of it, in order. */
export function highlight(text: string, language: string): readonly Piece[] {
  const name = language.toLowerCase()
  if (text.length > COLOURED_CHARS_MAX) return [{ kind: null, text }]
  if (name === 'diff' || name === 'patch') return diffPieces(text)
  const family = byName.get(name)
  return family === undefined ? [{ kind: null, text }] : familyPieces(text, family)
}

function familyPieces(text: string, family: Family): readonly Piece[] {
  const pieces: Piece[] = []
  let end = 0
  for (const match of text.matchAll(patternOf(family))) {
    const kind = kindOf(match.groups ?? {}, family)
    if (kind === null) continue
    if (match.index > end) pieces.push({ kind: null, text: text.slice(end, match.index) })
    pieces.push({ kind, text: match[0] })
    end = match.index + match[0].length
  }
  if (end < text.length) pieces.push({ kind: null, text: text.slice(end) })
  return pieces
}

function kindOf(groups: Readonly<Record<string, string>>, family: Family): PieceKind | null {
  if (groups['comment'] !== undefined) return 'comment'
  if (groups['text'] !== undefined) return 'text'
  if (groups['number'] !== undefined) return 'number'
  const { word = '', open } = groups
  if (family.words.has(family.isCaseless === true ? word.toLowerCase() : word)) return 'keyword'
  return open === undefined ? null : 'call'
}

function diffPieces(text: string): readonly Piece[] {
  return text.split(/(?<=\n)/).map((line) => {
    const kind = line.startsWith('+') ? 'added' : line.startsWith('-') ? 'removed' : null
    return { kind, text: line }
  })
}
