/** Paths of the repository. */
import { fileURLToPath } from 'node:url'

const { pathname } = new URL(import.meta.url)
/** The repository's root, from `test` as well as from `.build/test`. */
export const ROOT = fileURLToPath(
  new URL(pathname.includes('/.build/') ? '../../../' : '../../', import.meta.url),
)

/** The program `holdfast`, as it was built. */
export const CLI = `${ROOT}dist/cli/main.js`
