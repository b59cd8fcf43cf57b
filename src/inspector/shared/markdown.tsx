/** A message as Markdown, as elements: never as HTML. */
import type { ComponentChildren, VNode } from 'preact'
import { memo } from 'preact/compat'
import { useEffect, useMemo, useState } from 'preact/hooks'
import { useClipped } from './clipped.tsx'
import { CodeBlock } from './code-block.tsx'
import {
  codeOf,
  hiddenHost,
  markdownTree,
  safeAddress,
  TextBlocks,
  type MarkdownNode,
} from './markdown-tree.ts'
import { shownName, shownText } from './shown-text.ts'

/** A longer text is read in several steps, so that none takes longer than a frame. */
const WHOLE_CHARS_MAX = 4_000
const STEP_MS = 8
/** The rest of a longer text is shown on request. */
const SHOWN_CHARS_MAX = 200_000

/** `isGrowing`: parts are still added to the text. */
export const Markdown = memo(function Markdown({
  text,
  isGrowing = false,
}: {
  readonly text: string
  readonly isGrowing?: boolean
}) {
  const [shownPart, more] = useClipped(text, isGrowing ? Number.POSITIVE_INFINITY : SHOWN_CHARS_MAX)
  const isLong = text.length > WHOLE_CHARS_MAX
  const blocks = useMemo(() => new TextBlocks(), [])
  const parts = isGrowing || isLong ? blocks.of(shownPart) : [text]
  const ready = useSteps(parts, isLong && !isGrowing)
  return (
    <div class="markdown" dir="auto">
      {parts.slice(0, ready).map((part, index) => (
        <Block key={index} text={part} isLast={isGrowing && index === parts.length - 1} />
      ))}
      {ready === parts.length ? null : (
        <PlainText key="rest" text={parts.slice(ready).join('\n\n')} />
      )}
      {more}
    </div>
  )
})

/** How many of the blocks are to be shown as Markdown: more with each step. */
function useSteps(blocks: readonly string[], isInSteps: boolean): number {
  const [begun, setBegun] = useState(0)
  const ready = isInSteps ? readWithin(blocks, begun) : blocks.length
  useEffect(() => {
    if (ready === blocks.length) return
    const timer = setTimeout(() => setBegun(ready), 0)
    return () => clearTimeout(timer)
  })
  return ready
}

function readWithin(blocks: readonly string[], begun: number): number {
  const end = performance.now() + STEP_MS
  let ready = begun
  for (; ready < blocks.length && (ready === begun || performance.now() < end); ready += 1) {
    const block = blocks[ready] ?? ''
    if (codeOf(block) === null) markdownTree(block)
  }
  return ready
}

const Block = memo(function Block({
  text,
  isLast,
}: {
  readonly text: string
  readonly isLast: boolean
}) {
  const code = codeOf(text)
  if (code !== null) return <CodeBlock {...code} isPlain={isLast} />
  const tree = markdownTree(text)
  return tree === null ? (
    <PlainText text={text} />
  ) : (
    <>{shown(tree.children, { isPlain: isLast })}</>
  )
})

function PlainText({ text }: { readonly text: string }) {
  return <pre class="plain-text">{shownText(text)}</pre>
}

type Manner = { readonly isPlain: boolean }

function shown(children: readonly MarkdownNode[], manner: Manner): ComponentChildren {
  return children.map((node, index) => <Node key={index} node={node} manner={manner} />)
}

function Node({ node, manner }: { readonly node: MarkdownNode; readonly manner: Manner }) {
  switch (node.type) {
    case 'text':
      return <>{shownText(node.value)}</>
    case 'paragraph':
      return <p>{shown(node.children, manner)}</p>
    case 'heading':
      return <Heading depth={node.depth}>{shown(node.children, manner)}</Heading>
    case 'emphasis':
      return <em>{shown(node.children, manner)}</em>
    case 'strong':
      return <strong>{shown(node.children, manner)}</strong>
    case 'delete':
      return <del>{shown(node.children, manner)}</del>
    case 'inlineCode':
      return <code>{shownName(node.value)}</code>
    case 'code':
      return <CodeBlock text={node.value} language={node.lang ?? ''} isPlain={manner.isPlain} />
    case 'blockquote':
      return <blockquote>{shown(node.children, manner)}</blockquote>
    case 'thematicBreak':
      return <hr />
    case 'break':
      return <br />
    default:
      return <Structure node={node} manner={manner} />
  }
}

function Structure({ node, manner }: { readonly node: MarkdownNode; readonly manner: Manner }) {
  switch (node.type) {
    case 'list':
      return node.ordered === true ? (
        <ol start={node.start ?? 1}>{shown(node.children, manner)}</ol>
      ) : (
        <ul>{shown(node.children, manner)}</ul>
      )
    case 'listItem':
      return (
        <li data-checked={node.checked ?? undefined}>
          {typeof node.checked === 'boolean' ? (
            <input
              type="checkbox"
              checked={node.checked}
              disabled
              aria-label={node.checked ? 'done' : 'not done'}
            />
          ) : null}
          {shown(node.children, manner)}
        </li>
      )
    case 'table':
      return <Table rows={node.children} manner={manner} />
    case 'link':
      return <Link address={node.url}>{node.children}</Link>
    case 'image':
      // Never loaded: its address could tell another server what was read here.
      return <Link address={node.url}>{[{ type: 'text', value: `Image: ${node.alt ?? ''}` }]}</Link>
    case 'html':
      return <>{shownText(node.value)}</>
    default:
      return 'children' in node ? <>{shown(node.children, manner)}</> : null
  }
}

/** All on one level, below that of the turn: a text may begin with any and leave some out. */
function Heading({ depth, children }: { readonly depth: number; readonly children: unknown }) {
  return (
    <h4 class="heading" data-depth={depth}>
      {children as ComponentChildren}
    </h4>
  )
}

type TableNode = Extract<MarkdownNode, { type: 'table' }>

function Table({ rows, manner }: { rows: TableNode['children']; manner: Manner }) {
  const [head, ...body] = rows
  const cells = (row: TableNode['children'][number], Cell: 'th' | 'td') =>
    row.children.map((cell, index) => <Cell key={index}>{shown(cell.children, manner)}</Cell>)
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label="Table">
      <table>
        <thead>{head === undefined ? null : <tr>{cells(head, 'th')}</tr>}</thead>
        <tbody>
          {body.map((row, index) => (
            <tr key={index}>{cells(row, 'td')}</tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

function Link({
  address,
  children,
}: {
  readonly address: string
  readonly children: readonly MarkdownNode[]
}): VNode {
  const safe = safeAddress(address)
  const content = shown(children, { isPlain: false })
  if (safe === null) return <span title={shownName(address)}>{content}</span>
  const host = hiddenHost(textOf(children), safe)
  return (
    <>
      <a href={safe} target="_blank" rel="noopener noreferrer" title={shownName(safe)}>
        {content}
      </a>
      {host === null ? null : <span class="muted"> ({shownName(host)})</span>}
    </>
  )
}

function textOf(nodes: readonly MarkdownNode[]): string {
  return nodes
    .map((node) =>
      'value' in node
        ? node.value
        : 'children' in node
          ? textOf(node.children as MarkdownNode[])
          : '',
    )
    .join('')
}
