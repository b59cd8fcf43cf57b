/** Agents as the models that a client of the Copilot SDK may choose from. */
import type { Holdfast } from '../../core/index.ts'

/** Each agent by its name, and each model that is known of it as `AGENT/MODEL`. */
export function modelsOf(holdfast: Holdfast): readonly object[] {
  return holdfast.describeAgents().flatMap(({ name, capabilities: { models, images } }) => {
    const supports = { vision: images, reasoningEffort: false }
    // What a model takes is the agent's to know.
    const capabilities = { supports, limits: { max_context_window_tokens: 0 } }
    const ids = [name, ...models.map((model) => `${name}/${model}`)]
    return ids.map((id) => ({ id, name: id, capabilities }))
  })
}
