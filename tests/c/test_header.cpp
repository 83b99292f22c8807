// The header from C++: it compiles without warnings, and links.
#include <cstring>
#include <memory>

#include "sparsebayes.h"

int main() {
    sb_predictor *model = nullptr;
    const sb_status status = sb_load("no such file", &model);
    const std::unique_ptr<sb_predictor, decltype(&sb_free)> owner(model, sb_free);
    const bool refused = status == SB_STATUS_IO && !owner && std::strlen(sb_last_error()) > 0;
    return refused && sb_n_features(model) == 0 ? 0 : 1;
}
