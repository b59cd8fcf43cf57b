/**
 * Where the children of a runner work: their environment, and a folder for each session. Processes
 * that an earlier server left in the folder are killed before the first child starts (I2).
 */
import { access, constants, mkdir } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import type { Diagnose } from '../core/index.ts'
import { Child, childEnvironment, type EnvironmentOptions } from './child.ts'
import { folderName, killOrphans, killOwn, markOf } from './processes.ts'

export type WorkplaceOptions = EnvironmentOptions & {
  /** The program of all children. */
  readonly command: string
  /** Where all children work; without it each session has a folder of its own in `folder`. */
  readonly cwd?: string
  /** The parent of the sessions' folders. Without both, children work where this process does. */
  readonly folder?: string
  /** The time between SIGTERM and SIGKILL of a child that is stopped. */
  readonly killGraceMs?: number
}

export class Workplace {
  readonly #options: WorkplaceOptions
  readonly #cleared: Promise<unknown>
  diagnose: Diagnose = () => undefined

  constructor(options: WorkplaceOptions) {
    this.#options = options
    this.#cleared = options.folder === undefined ? Promise.resolve() : killOrphans(options.folder)
  }

  /** Starts a child; without `cwd` it works where this process does. */
  start(args: readonly string[], cwd: string | undefined): Child {
    const { command, folder, killGraceMs } = this.#options
    const mark = folder === undefined ? {} : markOf(folder)
    const env = { ...childEnvironment(this.#options), ...mark }
    return new Child({ command, args, cwd, env, killGraceMs, diagnose: this.diagnose })
  }

  /** A session's folder, created if missing. It has the agent's work; nothing deletes it. */
  async folderOf(session: string): Promise<string> {
    const { cwd, folder: root } = this.#options
    await this.#cleared
    if (cwd !== undefined || root === undefined) {
      await access(cwd ?? '.', constants.X_OK)
      return resolve(cwd ?? '.')
    }
    const folder = join(root, folderName(session))
    await mkdir(folder, { recursive: true, mode: 0o700 }).catch(
      ({ code }: NodeJS.ErrnoException) => {
        // The turn fails with this message, which clients see: it must not contain the path.
        throw new Error(`the agent's working folder cannot be created: ${code}`)
      },
    )
    return folder
  }

  /** Kills what the children have left running. */
  async close(): Promise<void> {
    if (this.#options.folder !== undefined) await killOwn(this.#options.folder)
  }
}
