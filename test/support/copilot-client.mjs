/**
 * A program with the stock Copilot SDK, for a test to kill or to measure: `SDK PORT TOKEN`, and
 * `ask NAME`: sends in a session and never answers what it is asked; or
 * `churn COUNT PREFIX`: creates so many sessions and disposes of them.
 */
const [sdk = '', port = '', connectionToken = '', what = '', ...rest] = process.argv.slice(2)
const { CopilotClient, RuntimeConnection } = await import(sdk)
const connection = RuntimeConnection.forUri(`127.0.0.1:${port}`, { connectionToken })
const client = new CopilotClient({ connection })

if (what === 'ask') {
  const [sessionId = ''] = rest
  const onPermissionRequest = () => {
    console.log('asked')
    return new Promise(() => undefined)
  }
  const session = await client.createSession({ sessionId, model: 'permitted', onPermissionRequest })
  await session.send('do it')
  await new Promise(() => undefined)
}

const [count = '0', prefix = ''] = rest
const onPermissionRequest = () => ({ kind: 'approve-once' })
const one = async (index) => {
  const sessionId = `${prefix}${index}`
  const session = await client.createSession({ sessionId, onPermissionRequest })
  if (index % 5 === 0) await session.sendAndWait('hello')
  await session.disconnect()
  if (index % 2 === 0) await client.deleteSession(sessionId)
}
let next = 0
const worker = async () => {
  for (let index = next++; index < Number(count); index = next++) await one(index)
}
await Promise.all(Array.from({ length: 50 }, worker))
const errors = await client.stop()
console.log(errors.length === 0 ? 'done' : String(errors))
process.exit(0)
