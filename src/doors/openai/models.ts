/** `/v1/models`: each agent is a model. */
import { HoldfastError, type Holdfast } from '../../core/index.ts'
import type { Exchange } from '../exchange.ts'

export function listModels(exchange: Exchange): void {
  const data = exchange.holdfast.authority.agents.map(view)
  exchange.reply(200, { object: 'list', data })
}

export function getModel(exchange: Exchange): void {
  const [model = ''] = exchange.params
  assertModel(exchange.holdfast, model)
  exchange.reply(200, view(model))
}

function assertModel({ authority: { agents } }: Holdfast, model: string): void {
  if (agents.includes(model)) return
  throw new HoldfastError('agent_unknown', `there is no agent ${model}: ${agents.join(', ')}`)
}

/** When an agent was set up is not known. */
function view(agent: string) {
  return { id: agent, object: 'model', created: 0, owned_by: 'holdfast' }
}
