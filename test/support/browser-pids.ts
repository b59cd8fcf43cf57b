/** The browsers that this process has started, by their process ids. */
import { execFileSync } from 'node:child_process'

export function browserPids(): number[] {
  const lines = execFileSync('ps', ['-eo', 'pid,ppid,args'], { encoding: 'utf8' }).split('\n')
  return lines
    .map((line) => /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(line))
    .filter((found) => Number(found?.[2]) === process.pid)
    .filter((found) => found?.[3]?.includes('--remote-debugging-pipe') === true)
    .map((found) => Number(found?.[1]))
}
