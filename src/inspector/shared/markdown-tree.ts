/** Markdown as a tree. What is written as HTML stays text: nothing in a session becomes markup. */
import type { Root, RootContent } from 'mdast'
import { fromMarkdown } from 'mdast-util-from-markdown'
import { gfmAutolinkLiteralFromMarkdown } from 'mdast-util-gfm-autolink-literal'
import { gfmStrikethroughFromMarkdown } from 'mdast-util-gfm-strikethrough'
import { gfmTableFromMarkdown } from 'mdast-util-gfm-table'
import { gfmTaskListItemFromMarkdown } from 'mdast-util-gfm-task-list-item'
import { gfmAutolinkLiteral } from 'micromark-extension-gfm-autolink-literal'
import { gfmStrikethrough } from 'micromark-extension-gfm-strikethrough'
import { gfmTable } from 'micromark-extension-gfm-table'
import { gfmTaskListItem } from 'micromark-extension-gfm-task-list-item'

export type MarkdownNode = RootContent

/** A longer text is shown as it is: its tree would take longer than a frame. */
const PARSED_CHARS_MAX = 8_000
const CACHED_MAX = 400

const cache = new Map<string, Root>()

/** Null: the text is too long to be read as Markdown. */
export function markdownTree(text: string): Root | null {
  if (text.length > PARSED_CHARS_MAX) return null
  const known = cache.get(text)
  if (known !== undefined) return known
  const tree = fromMarkdown(text, {
    extensions: [gfmTable(), gfmStrikethrough(), gfmTaskListItem(), gfmAutolinkLiteral()],
    mdastExtensions: [
      gfmTableFromMarkdown(),
      gfmStrikethroughFromMarkdown(),
      gfmTaskListItemFromMarkdown(),
      gfmAutolinkLiteralFromMarkdown(),
    ],
  })
  cache.set(text, tree)
  if (cache.size > CACHED_MAX) for (const oldest of cache.keys()) return forget(oldest, tree)
  return tree
}

function forget(oldest: string, tree: Root): Root {
  cache.delete(oldest)
  return tree
}

const FENCE = /^ {0,3}(`{3,}|~{3,})/

/**
 * A text as blocks, that may still grow: all but the last are done, so that only the last one is
 * read again when a part is added. A blank line outside of a code block separates them.
 */
export class TextBlocks {
  #done: string[] = []
  #doneChars = 0

  /** `text`: what it was before, and more. */
  of(text: string): readonly string[] {
    if (text.length < this.#doneChars) {
      this.#done = []
      this.#doneChars = 0
    }
    let block: string[] = []
    let fence: string | null = null
    let at = this.#doneChars
    for (const line of text.slice(at).split('\n')) {
      at += line.length + 1
      const mark = FENCE.exec(line)?.[1]
      if (fence === null) fence = mark ?? null
      else if (mark?.startsWith(fence) === true) fence = null
      const isBreak = fence === null && line.trim() === '' && at <= text.length
      if (!isBreak) block.push(line)
      else if (block.length > 0) {
        this.#done.push(block.join('\n'))
        this.#doneChars = at
        block = []
      }
    }
    return block.length === 0 ? [...this.#done] : [...this.#done, block.join('\n')]
  }
}

export type CodeText = { readonly language: string; readonly text: string }

/** The code in a block that is nothing else, whether or not its end has come; null: it is none. */
export function codeOf(block: string): CodeText | null {
  const [, fence = '', language = ''] = /^(`{3,}|~{3,})([^\n`]*)(?:\n|$)/.exec(block) ?? []
  if (fence === '') return null
  const [, ...lines] = block.split('\n')
  const end = lines.findIndex((line) => FENCE.exec(line)?.[1]?.startsWith(fence) === true)
  if (end !== -1 && end < lines.length - 1) return null
  const code = end === -1 ? lines : lines.slice(0, end)
  return { language: language.trim().split(/\s/)[0] ?? '', text: code.join('\n') }
}

const ADDRESS = /^(https?|mailto):/i

/** The address of a link; null: it leads to something that a page must not open. */
export function safeAddress(address: string): string | null {
  return ADDRESS.test(address) && URL.canParse(address) ? address : null
}

/** The host that a link leads to, if its text names another one. */
export function hiddenHost(text: string, address: string): string | null {
  const host = URL.parse?.(address)?.host ?? ''
  const isAddress = /^(https?:\/\/|www\.)?[\w-]+(\.[\w-]+)+/i.test(text.trim())
  return isAddress && !text.toLowerCase().includes(host.toLowerCase()) ? host : null
}
