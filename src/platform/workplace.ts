/**
 * Where the children of a runner work: their environment, and a folder for each session. Processes
 * that an earlier server left in the folder are killed before the first child starts (I2).
 */
import { access, constants } from 'node:fs/promises'
import { resolve } from 'node:path'
import { childEnvironment, type EnvironmentOptions } from './child.ts'
import { sessionFolder } from './folders.ts'
import { killOrphans, killOwn, markOf } from './processes.ts'

export type WorkplaceOptions = EnvironmentOptions & {
  /** Where all children work; without it each session has a folder of its own in `folder`. */
  readonly cwd?: string
  /** The parent of the sessions' folders. Without both, children work where this process does. */
  readonly folder?: string
}

export class Workplace {
  readonly #options: WorkplaceOptions
  readonly #cleared: Promise<unknown>

  constructor(options: WorkplaceOptions) {
    this.#options = options
    this.#cleared = options.folder === undefined ? Promise.resolve() : killOrphans(options.folder)
  }

  /** The environment of a child. */
  environment(): Record<string, string> {
    const { folder } = this.#options
    return { ...childEnvironment(this.#options), ...(folder === undefined ? {} : markOf(folder)) }
  }

  /** The working folder of a session; rejects if it cannot be used. */
  async folderOf(session: string): Promise<string> {
    const { cwd, folder } = this.#options
    await this.#cleared
    if (cwd === undefined && folder !== undefined) return sessionFolder(folder, session)
    await access(cwd ?? '.', constants.X_OK)
    return resolve(cwd ?? '.')
  }

  /** Kills what the children have left running. */
  async close(): Promise<void> {
    if (this.#options.folder !== undefined) await killOwn(this.#options.folder)
  }
}
