/** Finding a program, so that a missing one is reported at the start and not by the first turn. */
import { access, constants, stat } from 'node:fs/promises'
import { delimiter, join, resolve } from 'node:path'

/** The program's own path: a name is looked for on PATH, anything else is relative to `base`. */
export async function findProgram(
  command: string,
  base: string,
  path = process.env['PATH'] ?? '',
): Promise<string | null> {
  if (/[/\\]/.test(command)) {
    const file = resolve(base, command)
    return (await isProgram(file)) ? file : null
  }
  const endings = process.platform === 'win32' ? ['.exe', '.cmd', ''] : ['']
  for (const folder of path.split(delimiter).filter((one) => one !== '')) {
    for (const ending of endings) {
      const file = resolve(join(folder, command + ending))
      if (await isProgram(file)) return file
    }
  }
  return null
}

/** False too for a file that cannot be looked at: the search goes on. */
async function isProgram(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK)
    return (await stat(file)).isFile()
  } catch {
    return false
  }
}
