/**
 * Where a conversation is shown and typed. At a terminal output and typing share the screen: a
 * prompt with typed text stays below, and whole lines appear above it. While nothing is typed the
 * answer is shown as it comes. In pipes answers go to stdout, and the rest to stderr.
 */
import {
  clearScreenDown,
  createInterface,
  cursorTo,
  moveCursor,
  type Interface,
} from 'node:readline'
import { paintFor, printableLines, type Paint } from './output.ts'

type ScreenListener = {
  readonly line: (text: string) => void
  readonly interrupt: () => void
  /** No more lines come. */
  readonly end: () => void
}

type Key = { readonly ctrl?: boolean; readonly meta?: boolean }

const PROMPT = '> '

export class Screen {
  readonly isTerminal = process.stdin.isTTY && process.stdout.isTTY
  readonly paint: Paint = paintFor(this.isTerminal ? process.stdout : process.stderr)
  readonly #reader: Interface
  readonly #listener: ScreenListener
  #isPrompting = false
  #isClosed = false
  /** Whether the last line that was printed is unfinished. */
  #isOpenLine = false
  /** What arrived while a prompt was shown, since the last line break. */
  #pending = ''

  constructor(listener: ScreenListener) {
    this.#listener = listener
    const { stdin: input, stdout } = process
    const output = this.isTerminal ? { output: stdout } : {}
    this.#reader = createInterface({ input, ...output, terminal: this.isTerminal, prompt: PROMPT })
    this.#reader.on('line', (text) => {
      this.#isPrompting = false
      this.#flush()
      listener.line(text)
    })
    this.#reader.on('close', () => this.#isClosed || listener.end())
    this.#reader.on('SIGINT', listener.interrupt)
    process.on('SIGINT', listener.interrupt)
    // Before the reader, which would show the character behind the answer.
    if (this.isTerminal) input.prependListener('keypress', this.#onKey)
  }

  /** The text that is typed and not sent yet. */
  get typed(): string {
    return this.#reader.line
  }

  /** A part of an answer. */
  write(text: string): void {
    if (!this.#isPrompting) return this.#print(text)
    const all = this.#pending + text
    const end = all.lastIndexOf('\n') + 1
    this.#pending = all.slice(end)
    if (end > 0) this.#above(() => this.#print(all.slice(0, end)))
  }

  /** Lines of their own, beside the answer. Hostile characters are for the caller to remove. */
  say(lines: string): void {
    this.#above(() => {
      this.#finishLine()
      if (this.isTerminal) process.stdout.write(`${lines}\n`)
      else process.stderr.write(`${lines}\n`)
    })
  }

  finishLine(): void {
    this.#above(() => this.#finishLine())
  }

  /** Shows the prompt, or another one; null: not while nothing is typed. */
  prompt(words: string | null): void {
    if (!this.isTerminal || this.#isClosed) return
    if (words === null) {
      if (!this.#isPrompting || this.typed !== '') return
      this.#hide()
      return this.#flush()
    }
    if (this.#isPrompting && words === this.#reader.getPrompt()) return
    if (this.#isPrompting) this.#hide()
    this.#finishLine()
    this.#reader.setPrompt(words)
    this.#show()
  }

  /** Puts a text behind the prompt as if it was typed, to be changed there. */
  type(text: string): void {
    this.#reader.write(text)
  }

  close(): void {
    this.#isClosed = true
    process.off('SIGINT', this.#listener.interrupt)
    process.stdin.off('keypress', this.#onKey)
    if (this.#isPrompting) this.#hide()
    this.#finishLine()
    this.#reader.close()
  }

  /** Prints above the prompt, which is shown again with what was typed. */
  #above(print: () => void): void {
    const isPrompting = this.#isPrompting
    if (isPrompting) this.#hide()
    print()
    if (isPrompting) this.#show()
  }

  #finishLine(): void {
    this.#flush()
    if (this.#isOpenLine) process.stdout.write('\n')
    this.#isOpenLine = false
  }

  #flush(): void {
    const rest = this.#pending
    this.#pending = ''
    this.#print(rest)
  }

  #print(text: string): void {
    if (text === '') return
    this.#isOpenLine = !text.endsWith('\n')
    process.stdout.write(process.stdout.isTTY ? printableLines(text) : text)
  }

  #show(): void {
    this.#isPrompting = true
    this.#reader.prompt(true)
  }

  #hide(): void {
    const { rows } = this.#reader.getCursorPos()
    moveCursor(process.stdout, 0, -rows)
    cursorTo(process.stdout, 0)
    clearScreenDown(process.stdout)
    this.#isPrompting = false
  }

  readonly #onKey = (typed: string | undefined, { ctrl, meta }: Key): void => {
    const isText = typed !== undefined && typed >= ' ' && typed !== '\u007F' && !ctrl && !meta
    if (isText && !this.#isPrompting) this.prompt(PROMPT)
  }
}
