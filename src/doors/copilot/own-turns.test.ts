import { describe, expect, it } from 'vitest'
import { OwnTurns } from './own-turns.ts'

async function sent(own: OwnTurns, turn: string, answers: string[] | null = null): Promise<void> {
  const work = async (): Promise<void> => {
    await Promise.resolve()
    own.add(turn, answers === null ? null : (failure) => answers.push(failure?.code ?? 'ok'))
  }
  await own.sending(work())
}

describe('the end of a turn', () => {
  it('is told to a client that only follows', () => {
    expect(new OwnTurns().end('t1', null)).toBe(true)
  })

  it('is told to a client that has sent, if the turn is its own, and not otherwise', async () => {
    const own = new OwnTurns()
    await sent(own, 't2')
    expect(own.end('t1', null)).toBe(false)
    expect(own.end('t2', null)).toBe(true)
    expect(own.end('t3', null)).toBe(false)
  })

  it('answers what was held back until then, with its failure', async () => {
    const own = new OwnTurns()
    const answers: string[] = []
    await sent(own, 't1', answers)
    await sent(own, 't2', answers)
    own.end('t1', null)
    own.end('t2', { code: 'runner_failed', message: 'x' })
    expect(answers).toEqual(['ok', 'runner_failed'])
  })

  it('is not decided while a message of the client has no turn yet', async () => {
    const own = new OwnTurns()
    let admit: () => void = () => undefined
    const admitted = new Promise<void>((resolve) => (admit = resolve))
    void own.sending(admitted.then(() => own.add('t1', null)))
    let isSettled = false
    const settled = own.settled().then(() => (isSettled = true))
    await new Promise((resolve) => setImmediate(resolve))
    expect(isSettled).toBe(false)
    admit()
    await settled
    expect(own.end('t1', null)).toBe(true)
  })

  it('comes for all that was held back when the session is over', async () => {
    const own = new OwnTurns()
    const answers: string[] = []
    await sent(own, 't1', answers)
    own.fail({ code: 'session_closed', message: 'x' })
    expect(answers).toEqual(['session_closed'])
    expect(own.isCrowded).toBe(false)
  })
})

describe('a call', () => {
  it('is crowded while another turn of its client is open or on its way', async () => {
    const own = new OwnTurns()
    expect(own.isCrowded).toBe(false)
    const sending = sent(own, 't1')
    expect(own.isCrowded).toBe(true)
    await sending
    expect(own.isCrowded).toBe(true)
    own.end('t1', null)
    expect(own.isCrowded).toBe(false)
  })

  it('is crowded until its client has come to the last end', () => {
    const own = new OwnTurns()
    const [came, past] = [own.ahead(), own.around()]
    expect(own.isCrowded).toBe(true)
    came()
    expect(own.isCrowded).toBe(false)
    // Past it, if the client has made several calls at once.
    own.isConcurrent = true
    expect(own.isCrowded).toBe(true)
    past()
    expect(own.isCrowded).toBe(false)
  })

  it('shows by another one beside it that its client makes several at once', async () => {
    const own = new OwnTurns()
    await sent(own, 't1')
    own.end('t1', null)
    await sent(own, 't2')
    expect(own.isConcurrent).toBe(false)
    await sent(own, 't3')
    expect(own.isConcurrent).toBe(true)
  })
})
