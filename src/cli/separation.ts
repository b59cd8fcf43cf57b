/**
 * What keeps the principals of a server apart on its machine: agents that are isolated, and files
 * that other users cannot read. A server with several principals does not start without them.
 */
import { statSync, type Stats } from 'node:fs'
import { dirname, resolve } from 'node:path'
import type { Diagnose, DiagnosticCode } from '../core/index.ts'

/** Forbidden modes. Kubernetes gives a secret to a group, under another owner. */
const MODES_OF_OWN_FILE = 0o077
const MODES_OF_OTHERS_FILE = 0o027
/** To pass through a folder shows nothing of it, and agents of another user have to. */
const PASS = 0o011
/** A folder of another owner is a volume that was mounted for a group. */
const MODES_OF_OTHERS_FOLDER = 0o006

/** Whether other users may read or change it. */
export function isOpenToOthers(found: Stats): boolean {
  if (process.platform === 'win32') return false
  const isOwn = found.uid === process.getuid?.()
  if (found.isDirectory()) {
    return (found.mode & (isOwn ? MODES_OF_OWN_FILE & ~PASS : MODES_OF_OTHERS_FOLDER)) !== 0
  }
  return (found.mode & (isOwn ? MODES_OF_OWN_FILE : MODES_OF_OTHERS_FILE)) !== 0
}

/** Null if it is not there: it will be made for its owner only. So it is if its path is wrong. */
function statOf(path: string): Stats | null {
  try {
    return statSync(path)
  } catch {
    // The store, or the tokens file, says what is wrong with it when it is opened.
    return null
  }
}

type SeparationOptions = {
  /** Whether more than one principal may use the server: by its tokens, or by who signs them. */
  readonly severalPrincipals: () => boolean
  /** Why each agent is not isolated that is not. */
  readonly unisolated: Readonly<Record<string, string>>
  readonly isUnisolatedAllowed: boolean
  /** Files and folders for the server only. */
  readonly files: readonly string[]
  readonly diagnose: Diagnose
}

export class Separation {
  readonly #options: SeparationOptions
  #unisolated: SeparationOptions['unisolated']

  constructor(options: SeparationOptions) {
    this.#options = options
    this.#unisolated = options.unisolated
  }

  /** Throws if principals are not kept apart; with one principal it only reports. */
  check(): void {
    for (const path of this.#options.files) this.#checkFile(path)
    this.assertApart(this.#unisolated, this.#options.severalPrincipals())
    this.report()
  }

  /** Throws if a server with these agents would not keep its principals apart. */
  assertApart(unisolated: SeparationOptions['unisolated'], isSeveral: boolean): void {
    const [[agent, gap] = []] = Object.entries(unisolated)
    if (agent === undefined || this.#options.isUnisolatedAllowed || !isSeveral) return
    throw new Error(
      `several principals use this server, and the agent ${agent} is not isolated: ${gap}; ` +
        'set "isolation" in its configuration, or start with --allow-unisolated-agents',
    )
  }

  /** The agents have changed. */
  replace(unisolated: SeparationOptions['unisolated']): void {
    this.#unisolated = unisolated
    this.report()
  }

  /** What a server that runs cannot refuse any more: its tokens may have changed. */
  report(): void {
    const { diagnose } = this.#options
    const agents = Object.keys(this.#unisolated).join(', ')
    const message = 'several principals use agents that are not isolated from each other'
    if (this.warnings().length > 0) diagnose('agents_unisolated', message, { agents })
  }

  readonly warnings = (): readonly DiagnosticCode[] => {
    const { severalPrincipals } = this.#options
    const isApart = Object.keys(this.#unisolated).length === 0 || !severalPrincipals()
    return isApart ? [] : ['agents_unisolated']
  }

  #checkFile(path: string): void {
    const found = statOf(path)
    if (found === null || !isOpenToOthers(found)) return
    const folder = statOf(dirname(resolve(path)))
    if (folder !== null && (folder.mode & PASS) === 0) return
    const command = `chmod ${found.isDirectory() ? '700' : '600'} ${path}`
    if (this.#options.severalPrincipals()) {
      throw new Error(`several principals use this server, and others may read ${path}: ${command}`)
    }
    const message = 'other users of this machine may read a file of the server'
    this.#options.diagnose('readable_by_others', message, { path, command })
  }
}
