/** Asks: what waits for an answer, and answering it. */
import { readAnswerBody } from '../../wire/bodies.ts'
import type { Exchange } from '../exchange.ts'

export async function getAsks(exchange: Exchange): Promise<void> {
  const [id = ''] = exchange.params
  exchange.reply(200, { asks: await exchange.holdfast.session(id).asks() })
}

export async function answerAsk(exchange: Exchange): Promise<void> {
  const [id = '', ask = ''] = exchange.params
  const answer = readAnswerBody(await exchange.json())
  await exchange.holdfast.session(id).answer(ask, answer)
  exchange.reply(200, { session: id, ask: { id: ask, outcome: 'answered', answer } })
}
