/** Holdfast's server with Claude Code as its agent, as `holdfast serve --agent claude` opens it. */
import { claudeRunner, openHoldfast } from 'holdfast'
import { startServer } from 'holdfast/server'

const [folder = '', command = '', env = '{}'] = process.argv.slice(2)
const claude = claudeRunner({
  command,
  folder: `${folder}/agents`,
  env: JSON.parse(env) as Record<string, string>,
})
const holdfast = await openHoldfast({ store: `sqlite:${folder}/claude.db`, agents: { claude } })
const server = await startServer({ holdfast, port: 0 })
process.once('message', () => {
  void server
    .close()
    .then(() => holdfast.close())
    .then(() => process.exit(0))
})
process.send?.(server.port)
