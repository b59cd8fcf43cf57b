/** OpenAI's contract, as far as it is served. */
import { HoldfastError } from '../../core/index.ts'
import { json, query, routes, type Route } from '../route.ts'
import { chatRoutes } from './chat.ts'
import { CONVERSATION_ROUTES } from './conversations.ts'
import { responseRoutes } from './responses.ts'

/** Each agent is a model. When it was set up is not known. */
const modelView = (id: string) => ({ id, object: 'model', created: 0, owned_by: 'holdfast' })

const MODEL_ROUTES = routes({
  'GET /v1/models': {
    name: 'listModels',
    summary: 'OpenAI: the agents, as models',
    operation: 'agent.read',
    answers: { 200: json('The models.', { type: 'object' }) },
    handle: (exchange) => {
      const data = exchange.holdfast.agents.map(modelView)
      exchange.reply(200, { object: 'list', data })
    },
  },
  'GET /v1/models/:model': {
    name: 'getModel',
    summary: 'OpenAI: one agent, as a model',
    operation: 'agent.read',
    answers: { 200: json('The model.', { type: 'object' }) },
    refusals: [404],
    handle: (exchange) => {
      const [model = ''] = exchange.params
      const { agents } = exchange.holdfast
      if (agents.includes(model)) return exchange.reply(200, modelView(model))
      throw new HoldfastError('agent_unknown', `there is no agent ${model}: ${agents.join(', ')}`)
    },
  },
})

/** Clients of OpenAI's API send parameters that are not ours: Azure's have a version. */
const ANY_QUERY = query({}, 'ignored')

/** Routes of one server: those for turns remember attempts. */
export function openAiRoutes(): readonly Route[] {
  const all = [...chatRoutes(), ...responseRoutes(), ...CONVERSATION_ROUTES, ...MODEL_ROUTES]
  return all.map((route) => ({ query: ANY_QUERY, ...route }))
}
