/** The figures as text: of one state of the sources, or of two and what changed between them. */
import { cycleLine, type Cycle } from './cycles.ts'
import type { Crossing } from './crossings.ts'
import type { Figures, Noun } from './figures.ts'

export type House = Figures & {
  /** What was measured: a commit, or the working tree. */
  readonly at: string
  readonly crossings: readonly Crossing[]
}

type Section = {
  readonly title: string
  /** What is counted, in a sentence. */
  readonly about: string
  readonly columns: readonly string[]
  readonly rows: readonly (readonly [string, ...(number | string)[]])[]
  readonly list: readonly string[]
}

export function houseReport(house: House): string {
  const sections = sectionsOf(house).map((section) =>
    [heading(section), ...table(section.columns, section.rows), ...indented(section.list)].join(
      '\n',
    ),
  )
  return [`The house at ${house.at}`, ...sections, ''].join('\n\n')
}

/** Numbers as they are, with what they have changed by; of the lists only what came and went. */
export function differenceReport(before: House, after: House): string {
  const earlier = sectionsOf(before)
  const sections = sectionsOf(after).map((section) => {
    const { rows = [], list = [] } = earlier.find(({ title }) => title === section.title) ?? {}
    const labels = new Set([...section.rows, ...rows].map(([label]) => label))
    const cells = [...labels].map((label): Section['rows'][number] => {
      const was = rows.find(([other]) => other === label)?.slice(1)
      const is = section.rows.find(([other]) => other === label)?.slice(1)
      return [label, ...section.columns.slice(1).map((_, at) => change(was?.[at], is?.[at]))]
    })
    const gone = list.filter((line) => !section.list.includes(line)).map((line) => `- ${line}`)
    const come = section.list.filter((line) => !list.includes(line)).map((line) => `+ ${line}`)
    return [heading(section), ...table(section.columns, cells), ...indented([...gone, ...come])]
  })
  const title = `The house at ${after.at}, since ${before.at}`
  const changed = sections.filter((lines) => lines.length > 1)
  return [title, ...changed.map((lines) => lines.join('\n')), ''].join('\n\n')
}

function change(before: number | string = 0, after: number | string = 0): string {
  if (before === after) return String(after)
  if (typeof before !== 'number' || typeof after !== 'number') return `${before} → ${after}`
  const by = after - before
  return `${after} (${by > 0 ? '+' : ''}${by})`
}

function sectionsOf(house: House): Section[] {
  return [
    roomSection(house),
    ...sizeSections(house),
    cycleSection('Import cycles between files', house.fileCycles),
    runTimeSection(house),
    cycleSection('Import cycles between rooms', house.roomCycles),
    ...nameSections(house),
    centralSection(house),
    ...crossingSections(house),
  ]
}

function roomSection({ rooms }: House): Section {
  const row = (label: string, all: House['rooms']): Section['rows'][number] => {
    const sum = (pick: (room: House['rooms'][number]) => number): number =>
      all.reduce((total, room) => total + pick(room), 0)
    const [code, comment, blank] = [
      sum((room) => room.code),
      sum((room) => room.comment),
      sum((room) => room.blank),
    ]
    return [label, sum(({ files }) => files), code, comment, blank, code + comment + blank]
  }
  return {
    title: 'Rooms',
    about:
      'Lines of .ts files below src, without tests and generated files; library is src itself.',
    columns: ['room', 'files', 'code', 'comment', 'blank', 'lines'],
    rows: [...rooms.map((room) => row(room.room, [room])), row('all', rooms)],
    list: [],
  }
}

function sizeSections({ routines, longFiles }: House): Section[] {
  const { count, median, p90, max, longest } = routines
  return [
    {
      title: 'Functions',
      about: 'Lines of functions, methods and named arrow functions; then the ten longest.',
      columns: ['', 'count', 'median', 'p90', 'max'],
      rows: [['functions', count, median, p90, max]],
      list: longest.map(({ lines, name, place }) => `${lines}  ${name}  ${place}`),
    },
    {
      title: 'Files over 400 lines',
      about: 'All lines, blank ones and comments included.',
      columns: ['', 'count'],
      rows: [['files', longFiles.length]],
      list: longFiles.map(({ path, lines }) => `${lines}  ${path}`),
    },
  ]
}

function cycleSection(title: string, found: readonly Cycle[]): Section {
  const largest = Math.max(0, ...found.map(({ members }) => members.length))
  return {
    title,
    about: 'Groups whose members all reach each other by imports, type imports included.',
    columns: ['', 'count', 'largest'],
    rows: [['cycles', found.length, largest]],
    list: found.map(cycleLine),
  }
}

function runTimeSection({ runTimeCycles }: House): Section {
  const section = cycleSection('Import cycles between files at run time', runTimeCycles)
  return { ...section, about: 'Without type imports, which the compiler erases.' }
}

function nameSections({ nouns, verbs, words }: House): Section[] {
  const line = ({ name, exported, files }: Noun): string =>
    `${name} ×${files.length} (${exported} exported)  ${files.join(' ')}`
  const declared = nouns.reduce((sum, { files }) => sum + files.length, 0)
  const exported = nouns.filter((noun) => noun.exported > 1).length
  return [
    {
      title: 'Nouns in more than one file',
      about:
        'Types, interfaces and classes of one name in several files, exported or not; not those' +
        ' that only stores share. Whether they mean the same, a reader has to judge.',
      columns: ['', 'names', 'exported twice', 'declarations'],
      rows: [['nouns', nouns.length, exported, declared]],
      list: nouns.map(line),
    },
    {
      title: 'Functions exported from more than one file',
      about: 'Functions of one name that several files export; not those that only stores share.',
      columns: ['', 'names'],
      rows: [['functions', verbs.length]],
      list: verbs.map(line),
    },
    {
      title: 'Words that many nouns end with',
      about:
        'Last words of type names, from four declarations in three rooms on. Some are ordinary' +
        ' (Options, Error); a word that names unlike things needs another name for some of them.',
      columns: ['', 'words'],
      rows: [['words', words.length]],
      list: words.map(
        ({ word, rooms, nouns: all }) =>
          `${word} ×${all.length} in ${rooms} rooms: ${[...new Set(all)].join(' ')}`,
      ),
    },
  ]
}

function centralSection({ central }: House): Section {
  const sum = (pick: (file: House['central'][number]) => number): number =>
    central.reduce((total, file) => total + pick(file), 0)
  return {
    title: 'The central files',
    about: 'Those that ARCHITECTURE.md says to read first; none if that sentence was not found.',
    columns: ['file', 'code', 'comment', 'blank', 'lines'],
    rows: [
      ...central.map(
        ({ path, code, comment, blank, lines }) => [path, code, comment, blank, lines] as const,
      ),
      [
        'all',
        sum(({ code }) => code),
        sum(({ comment }) => comment),
        sum(({ blank }) => blank),
        sum(({ lines }) => lines),
      ],
    ],
    list: [],
  }
}

function crossingSections({ crossings }: House): Section[] {
  const overview: Section = {
    title: 'Files that one operation goes through',
    about:
      'Files of dist with a function that ran on a warm server, from the request until 150 ms after' +
      ' the reply, in each of four rounds. The client is not counted; of two nodes, the union.',
    columns: ['operation', 'files'],
    rows: crossings.map((crossing) => [
      crossing.operation,
      'files' in crossing ? crossing.files.length : `not measured (${crossing.notMeasured})`,
    ]),
    list: [],
  }
  const each = crossings.flatMap((crossing): Section[] =>
    'files' in crossing
      ? [{ ...PLAIN, title: `Files of one ${crossing.operation}`, list: crossing.files }]
      : [],
  )
  return [overview, ...each]
}

const PLAIN: Section = { title: '', about: '', columns: [], rows: [], list: [] }

function heading({ title, about }: Section): string {
  return about === '' ? title : `${title}\n  ${about}`
}

function table(columns: Section['columns'], rows: Section['rows']): string[] {
  const all = [columns, ...rows.map((row) => row.map(String))]
  const widths = columns.map((_, at) => Math.max(...all.map((row) => row[at]?.length ?? 0)))
  const cell = (text: string, at: number): string =>
    at === 0 ? text.padEnd(widths[at] ?? 0) : text.padStart(widths[at] ?? 0)
  return columns.length === 0 ? [] : all.map((row) => `  ${row.map(cell).join('  ')}`.trimEnd())
}

function indented(lines: readonly string[]): string[] {
  return lines.map((line) => `    ${line}`)
}
